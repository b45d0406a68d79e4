-- SELECT p.b AS b1, q.b AS b2 FROM r AS p JOIN r AS q ON p.a = q.a

-- @: rows, key _hw_key_1, _hw_key_2, changes signed
SELECT
  `b1` AS `b1`,
  `b2` AS `b2`,
  `_hw_key_1` AS `_hw_key_1`,
  `_hw_key_2` AS `_hw_key_2`,
  `_hw_file` AS `_hw_file`,
  `_hw_position` AS `_hw_position`,
  `_hw_row` AS `_hw_row`,
  `_hw_w`
FROM (
  SELECT
    `b1`,
    `b2`,
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
      `b1`,
      `b2`,
      `_hw_key_1`,
      `_hw_key_2`,
      CAST(SUM(`_hw_w`) AS INT) AS `_hw_w`
    FROM (
      SELECT
        `b` AS `b1`,
        `b_2` AS `b2`,
        `r_rowid` AS `_hw_key_1`,
        `r_rowid_2` AS `_hw_key_2`,
        `_hw_w`
      FROM (
        SELECT
          `b` AS `b`,
          `b_2` AS `b_2`,
          `r_rowid`,
          `r_rowid_2`,
          `_hw_w`
        FROM (
          SELECT
            `a`,
            `b`,
            `a_2`,
            `b_2`,
            `r_rowid`,
            `r_rowid_2`,
            `_hw_w`
          FROM (
            SELECT
              `a`,
              `b`,
              `a_2`,
              `b_2`,
              `r_rowid`,
              `r_rowid_2`,
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
                `b` AS `b_2`,
                `rowid` AS `r_rowid_2`
              FROM `r@old`
            ) AS _r
              ON `a` = `a_2`
          ) AS _t
          UNION ALL
          SELECT
            `a`,
            `b`,
            `a_2`,
            `b_2`,
            `r_rowid`,
            `r_rowid_2`,
            `_hw_w`
          FROM (
            SELECT
              `a_2`,
              `b_2`,
              `a`,
              `b`,
              `r_rowid_2`,
              `r_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `a` AS `a_2`,
                `b` AS `b_2`,
                `rowid` AS `r_rowid_2`,
                `_hw_w`
              FROM `r@delta`
            ) AS _l
            INNER JOIN (
              SELECT
                `a` AS `a`,
                `b` AS `b`,
                `rowid` AS `r_rowid`
              FROM `r@new`
            ) AS _r
              ON `a` = `a_2`
          ) AS _t
        ) AS _t
      ) AS _t
    ) AS _t
    GROUP BY
      `b1`,
      `b2`,
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
