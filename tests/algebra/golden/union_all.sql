-- SELECT a FROM r UNION ALL SELECT y FROM s UNION ALL SELECT a FROM r

-- @: rows, key _hw_key_1, _hw_key_2, _hw_key_3, _hw_key_4, changes signed
SELECT
  `a` AS `a`,
  `_hw_key_1` AS `_hw_key_1`,
  `_hw_key_2` AS `_hw_key_2`,
  `_hw_key_3` AS `_hw_key_3`,
  `_hw_key_4` AS `_hw_key_4`,
  `_hw_file` AS `_hw_file`,
  `_hw_position` AS `_hw_position`,
  `_hw_row` AS `_hw_row`,
  `_hw_w`
FROM (
  SELECT
    `a`,
    `_hw_key_1`,
    `_hw_key_2`,
    `_hw_key_3`,
    `_hw_key_4`,
    `_hw_old__hw_key_1`,
    `_hw_old__hw_key_2`,
    `_hw_old__hw_key_3`,
    `_hw_old__hw_key_4`,
    `_hw_file`,
    `_hw_position`,
    `_hw_row`,
    `_hw_w`
  FROM (
    SELECT
      `a`,
      `_hw_key_1`,
      `_hw_key_2`,
      `_hw_key_3`,
      `_hw_key_4`,
      CAST(SUM(`_hw_w`) AS INT) AS `_hw_w`
    FROM (
      SELECT
        `a_4` AS `a`,
        `branch` AS `_hw_key_1`,
        `r_rowid` AS `_hw_key_2`,
        `s_rowid` AS `_hw_key_3`,
        `r_rowid_2` AS `_hw_key_4`,
        `_hw_w`
      FROM (
        SELECT
          `a` AS `a_4`,
          0 AS `branch`,
          `r_rowid` AS `r_rowid`,
          NULL AS `s_rowid`,
          NULL AS `r_rowid_2`,
          `_hw_w`
        FROM (
          SELECT
            `a` AS `a`,
            `r_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a` AS `a`,
              `rowid` AS `r_rowid`,
              `_hw_w`
            FROM `r@delta`
          ) AS _t
        ) AS _t
        UNION ALL
        SELECT
          `y` AS `a_4`,
          1 AS `branch`,
          NULL AS `r_rowid`,
          `s_rowid` AS `s_rowid`,
          NULL AS `r_rowid_2`,
          `_hw_w`
        FROM (
          SELECT
            `y` AS `y`,
            `s_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `y` AS `y`,
              `rowid` AS `s_rowid`,
              `_hw_w`
            FROM `s@delta`
          ) AS _t
        ) AS _t
        UNION ALL
        SELECT
          `a_3` AS `a_4`,
          2 AS `branch`,
          NULL AS `r_rowid`,
          NULL AS `s_rowid`,
          `r_rowid_2` AS `r_rowid_2`,
          `_hw_w`
        FROM (
          SELECT
            `a_3` AS `a_3`,
            `r_rowid_2`,
            `_hw_w`
          FROM (
            SELECT
              `a` AS `a_3`,
              `rowid` AS `r_rowid_2`,
              `_hw_w`
            FROM `r@delta`
          ) AS _t
        ) AS _t
      ) AS _t
    ) AS _t
    GROUP BY
      `a`,
      `_hw_key_1`,
      `_hw_key_2`,
      `_hw_key_3`,
      `_hw_key_4`
    HAVING
      SUM(`_hw_w`) <> 0
  ) AS _l
  LEFT JOIN (
    SELECT
      `_hw_key_1` AS `_hw_old__hw_key_1`,
      `_hw_key_2` AS `_hw_old__hw_key_2`,
      `_hw_key_3` AS `_hw_old__hw_key_3`,
      `_hw_key_4` AS `_hw_old__hw_key_4`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM `@@old`
  ) AS _r
    ON `_hw_key_1` IS NOT DISTINCT FROM `_hw_old__hw_key_1`
    AND `_hw_key_2` IS NOT DISTINCT FROM `_hw_old__hw_key_2`
    AND `_hw_key_3` IS NOT DISTINCT FROM `_hw_old__hw_key_3`
    AND `_hw_key_4` IS NOT DISTINCT FROM `_hw_old__hw_key_4`
) AS _t
