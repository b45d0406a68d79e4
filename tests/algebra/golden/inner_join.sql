-- SELECT r.b, s.y FROM r JOIN s ON r.a = s.a AND r.b < s.y

-- @: rows, key _hw_key_1, _hw_key_2, changes signed
SELECT
  `b` AS `b`,
  `y` AS `y`,
  `_hw_key_1` AS `_hw_key_1`,
  `_hw_key_2` AS `_hw_key_2`,
  `_hw_file` AS `_hw_file`,
  `_hw_position` AS `_hw_position`,
  `_hw_row` AS `_hw_row`,
  `_hw_w`
FROM (
  SELECT
    `b`,
    `y`,
    `_hw_key_1`,
    `_hw_key_2`,
    `_hw_old__hw_key_1`,
    `_hw_old__hw_key_2`,
    `_hw_file`,
    `_hw_position`,
    `_hw_row`,
    `_hw_w`
  FROM (
    SELECT
      `b`,
      `y`,
      `_hw_key_1`,
      `_hw_key_2`,
      CAST(SUM(`_hw_w`) AS INT) AS `_hw_w`
    FROM (
      SELECT
        `b` AS `b`,
        `y` AS `y`,
        `r_rowid` AS `_hw_key_1`,
        `s_rowid` AS `_hw_key_2`,
        `_hw_w`
      FROM (
        SELECT
          `b` AS `b`,
          `y` AS `y`,
          `r_rowid`,
          `s_rowid`,
          `_hw_w`
        FROM (
          SELECT
            `a`,
            `b`,
            `a_2`,
            `y`,
            `r_rowid`,
            `s_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a`,
              `b`,
              `a_2`,
              `y`,
              `r_rowid`,
              `s_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `a` AS `a`,
                `b` AS `b`,
                `rowid` AS `r_rowid`,
                `_hw_w`
              FROM `r@delta`
            ) AS _l
            INNER JOIN (
              SELECT
                `a` AS `a_2`,
                `y` AS `y`,
                `rowid` AS `s_rowid`
              FROM `s@old`
            ) AS _r
              ON `a` = `a_2` AND `b` < `y`
          ) AS _t
          UNION ALL
          SELECT
            `a`,
            `b`,
            `a_2`,
            `y`,
            `r_rowid`,
            `s_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a_2`,
              `y`,
              `a`,
              `b`,
              `s_rowid`,
              `r_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `a` AS `a_2`,
                `y` AS `y`,
                `rowid` AS `s_rowid`,
                `_hw_w`
              FROM `s@delta`
            ) AS _l
            INNER JOIN (
              SELECT
                `a` AS `a`,
                `b` AS `b`,
                `rowid` AS `r_rowid`
              FROM `r@new`
            ) AS _r
              ON `a` = `a_2` AND `b` < `y`
          ) AS _t
        ) AS _t
      ) AS _t
    ) AS _t
    GROUP BY
      `b`,
      `y`,
      `_hw_key_1`,
      `_hw_key_2`
    HAVING
      SUM(`_hw_w`) <> 0
  ) AS _l
  LEFT JOIN (
    SELECT
      `_hw_key_1` AS `_hw_old__hw_key_1`,
      `_hw_key_2` AS `_hw_old__hw_key_2`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM `@@old`
  ) AS _r
    ON `_hw_key_1` IS NOT DISTINCT FROM `_hw_old__hw_key_1`
    AND `_hw_key_2` IS NOT DISTINCT FROM `_hw_old__hw_key_2`
) AS _t
